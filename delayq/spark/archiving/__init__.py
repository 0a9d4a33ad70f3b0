"""Tables of Parquet that grow batch by batch, each row in them once for any reader."""
