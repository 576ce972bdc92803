// The service worker as a script of its own, to serve from the root of a site.

import { showPushes } from "./worker.js";

showPushes();
