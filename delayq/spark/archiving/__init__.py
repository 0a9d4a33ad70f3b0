"""Parquet tables that grow batch by batch, with each row exactly once for any reader."""
