"""Tasks in the folder layout of Terminal-Bench and Harbor."""
