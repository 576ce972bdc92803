export { type EventError, PublishError } from "./error.js";
export type * from "./events.js";
export { Publisher, type PublisherOptions, type Receipt } from "./publisher.js";
