"""How is a report written for a ticket? As Markdown that GitHub, GitLab and Jira show alike."""
