"""The explorer: a JSON API over ekgn.api, and the page that people open in a browser."""
