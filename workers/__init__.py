"""The processes that one deploys, each a short main."""
