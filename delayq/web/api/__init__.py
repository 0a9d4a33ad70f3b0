"""The HTTP API of the dashboard: what its pages can do, a program can do.

How to add to it: an operation is an async function of one of these modules. It takes the request and, by these names, a
`query` and a `body`: structs that say what the request may hold. It returns a struct, or raises an error that
`error_pages` knows. Its docstring is its description, in which a person and the OpenAPI document read it. The module
lists it in `OPERATIONS`, with its method and path, and `table` gathers these lists. Everything that is not a GET is a
POST that the middleware in `security` lets through for operators alone.
"""
