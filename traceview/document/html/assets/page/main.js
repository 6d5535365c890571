// Gives the page what needs a script: theme, copying, sorting, filtering, links. The last part.

offerTheme(document.getElementById("theme"));
document.querySelectorAll("[data-copy]").forEach(offerCopy);
document.querySelectorAll("table").forEach(offerSort);
document.querySelectorAll(".filter").forEach(offerFilter);
upgradeShowLinks();
acceptLinks();
