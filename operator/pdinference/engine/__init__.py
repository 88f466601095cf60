"""From a resource to command lines and environment, as data; nothing here is ever joined into shell text."""
