import { type Seq } from "./seq.js";
/** Options of {@link Badged.open}. */
export interface OpenOptions {
    /** See {@link OpenConversation.show}; default undefined. */
    readonly upToSeq?: Seq | string | undefined;
}
/** A conversation on the screen: the result of {@link Badged.open}. */
export interface OpenConversation {
    /**
     * Sets the newest message that the user can see, for apps that show only a part
     * of the conversation. Undefined stands for the last one delivered.
     *
     * @throws TypeError if it is not a seq.
     */
    show(upToSeq: Seq | string | undefined): void;
    /** The conversation is no longer on the screen. */
    close(): void;
}
/** A list on the screen: the result of {@link Badged.openCategory}. */
export interface OpenCategory {
    /** The list is no longer on the screen. */
    close(): void;
}
