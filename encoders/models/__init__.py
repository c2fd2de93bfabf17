"""The torch modules behind the model folders. Importing this package needs the extra ``[train]``."""
