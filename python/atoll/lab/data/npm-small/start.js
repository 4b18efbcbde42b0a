require("once");
require("semver");
