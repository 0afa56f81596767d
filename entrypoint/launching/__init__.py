"""What `entrypoint/launch.py` is made of. Standard library, Python 3.9 or newer, for it runs on the runner itself."""
