// Loads a few hundred modules from node_modules, as starting a server does.
require("express");
require("lodash");
require("react-dom/server");
require("eslint");
require("webpack");
