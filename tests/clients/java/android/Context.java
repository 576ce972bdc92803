package android.content;

import java.util.HashMap;
import java.util.Map;

/** Keeps shared preferences in memory. */
public class Context {
    public static final int MODE_PRIVATE = 0;

    private final Map<String, SharedPreferences> preferences = new HashMap<>();

    public SharedPreferences getSharedPreferences(String name, int mode) {
        return preferences.computeIfAbsent(name, n -> new SharedPreferences());
    }
}
