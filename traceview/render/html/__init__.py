"""How is a report written as one page for a browser? One file, without network, readable without JavaScript."""
