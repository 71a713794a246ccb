"""From a config to objects. Below this folder nothing knows the ConfigDict."""
