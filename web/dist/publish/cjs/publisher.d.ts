import type { BadgedEvent } from "./events.js";
/** Settings of a {@link Publisher}. */
export interface PublisherOptions {
    /** Where badged listens, such as `http://badged:8080`. */
    url: string;
    /** A publisher key. */
    key: string;
    /** The source of events that name none. */
    source?: string;
    /** For how long events are sent again while badged is away or busy; by default 60,000. */
    giveUpAfterMs?: number;
    /** How long a request may take; by default 10,000. */
    timeoutMs?: number;
    /** How many events a request has at most; by default 1,000, and never more than 10,000. */
    maxBatch?: number;
    /** How many events may wait; by default 100,000. Beyond that `publish` fails at once. */
    maxWaiting?: number;
    /** Sends the requests; by default the global `fetch`. */
    fetch?: typeof fetch;
}
/** Says that events are durable in the log. */
export interface Receipt {
    /** For `at_least`, to read a badge that includes the events. */
    position: string;
}
/**
 * Publishes events in order. What is published while a request is under way shares the
 * next one. While badged is away or busy, the events are sent again: an event counts once.
 */
export declare class Publisher {
    #private;
    constructor(options: PublisherOptions);
    /**
     * Publishes an event, or several: all or none. It resolves when they are durable in the
     * log, and rejects with a {@link PublishError}, or with a TypeError for what JSON cannot
     * say, such as a seq that was rounded.
     */
    publish(events: BadgedEvent | readonly BadgedEvent[]): Promise<Receipt>;
    /** Waits for what was published, and publishes nothing more. */
    close(): Promise<void>;
}
