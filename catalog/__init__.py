"""The catalog: reads and writes what the server stores about generations, and defines the fields of their documents. It searches and builds nothing."""
