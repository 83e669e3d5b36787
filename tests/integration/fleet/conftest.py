from postgres.fixtures import postgres

__all__ = ["postgres"]
