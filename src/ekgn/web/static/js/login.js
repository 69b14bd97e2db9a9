// Says that the token was wrong.
if (new URLSearchParams(location.search).has("wrong")) document.getElementById("wrong").hidden = false;
