"""What a check looks at. One file per code, named by it; its docstring is the page that `gradverify
explain` prints."""
