"""The recipes of real frameworks, run for real; `make test-frameworks` installs each and runs these."""
