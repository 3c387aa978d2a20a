"""The docs as a site: what holds pages, navigation, tables and pictures together."""
