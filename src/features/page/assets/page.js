// @ts-check
/**
 * The page that shows the resource in the address bar. All it knows of an API
 * is what the API says: the root document, `link` and `*_url` in records, the
 * `Link` field, and the response to OPTIONS. Text of records becomes text nodes
 * or attribute values, never HTML.
 *
 * These are its modules, each of which imports only those before it. The server
 * sends them as one file.
 */

import "./base/dom.js";
import "./base/http.js";
import "./base/frame.js";
import "./base/values.js";
import "./base/view.js";
import "./base/session.js";
import "./base/exchange.js";
import "./forms/controls.js";
import "./forms/filters.js";
import "./forms/dialogs.js";
import "./forms/import.js";
import "./forms/forms.js";
import "./numbers.js";
import "./collection.js";
import "./live.js";
import "./learn/lessons.js";
import "./learn/course.js";
import "./learn/manual.js";
import "./learn/docs.js";
import "./start.js";
import "./views.js";
