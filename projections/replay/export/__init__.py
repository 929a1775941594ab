"""Events exported to Parquet, and read from there."""
