import React from "react";
import { createRoot } from "react-dom/client";
import { total } from "./total";

function Basket({ lines }) {
  return <p>Total: {total(lines) / 100}</p>;
}

createRoot(document.getElementById("app")).render(<Basket lines={[{ price: 250, count: 2 }]} />);
