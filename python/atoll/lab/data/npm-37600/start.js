// Loads what a build of a web application loads.
require("@babel/core");
require("eslint");
require("express");
require("jest");
require("lodash");
require("react-dom/server");
require("tailwindcss");
require("typescript");
require("webpack");
require("workbox-build");
