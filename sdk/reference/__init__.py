"""The pages docs/reference/*.md, made from the docstrings of the SDKs: `python -m sdk.reference`."""
