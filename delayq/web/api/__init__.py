"""The HTTP API of the dashboard: programs can do what its pages can do.

How to add to it: an operation is an async function in one of these modules. It takes the request and, by these names, a
`query` and a `body`: structs that define the fields of the request. It returns a struct, or raises an error that
`error_pages` handles. Its docstring is its description, on the API page and in the OpenAPI document. The module lists
it in `OPERATIONS`, with the right that it needs and its path, and `table` collects these lists. An operation that only
needs to view is a GET, and one that acts is a POST.
"""
