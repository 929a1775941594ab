"""The session, the data source, and folds over columns."""
