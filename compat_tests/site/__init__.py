"""The docs as a site: pages, navigation, tables and pictures agree."""
