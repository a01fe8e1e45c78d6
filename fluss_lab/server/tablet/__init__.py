"""The tablet server: bucket logs and the requests on them."""
