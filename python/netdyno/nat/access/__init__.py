"""An access network in namespaces: subscribers that boot by DHCP, two NATs side by side, and the world."""
