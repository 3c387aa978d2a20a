"""The web console in a real browser: Debian's Chromium, driven over the WebDriver protocol."""
