"""A Hub on the loopback, repos for it, and the tests of what reads them."""
