"""One module a verb; each imports what it needs inside its commands: `--help` stays fast."""
