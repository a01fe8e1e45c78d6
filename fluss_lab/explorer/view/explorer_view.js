// The view of the explorer, as anywidget runs it.

import { Explorer } from "./explorer.js";

function render({ model, el }) {
  const explorer = new Explorer(model, el);
  return () => explorer.close();
}

export default { render };
