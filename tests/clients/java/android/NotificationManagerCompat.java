package androidx.core.app;

import android.content.Context;

/** Prints what it is asked to cancel. */
public class NotificationManagerCompat {
    public static NotificationManagerCompat from(Context context) {
        return new NotificationManagerCompat();
    }

    public void cancel(String tag, int id) {
        System.out.println("cancel " + tag + " " + id);
    }

    public void cancelAll() {
        System.out.println("cancel all");
    }
}
