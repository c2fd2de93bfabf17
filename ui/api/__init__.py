"""The JSON API: its parameters, its answers, and the OpenAPI document."""
