from hostile.fixtures import direct_jail, jail, own_jail, probe, shared_jail

__all__ = ["direct_jail", "jail", "own_jail", "probe", "shared_jail"]
