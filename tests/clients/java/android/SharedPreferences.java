package android.content;

import java.util.HashMap;
import java.util.Map;

/** Has the methods of Android's interface that the samples call. */
public class SharedPreferences {
    private final Map<String, Object> stored = new HashMap<>();

    public String getString(String key, String otherwise) {
        return (String) stored.getOrDefault(key, otherwise);
    }

    public long getLong(String key, long otherwise) {
        return (Long) stored.getOrDefault(key, otherwise);
    }

    public Editor edit() {
        return new Editor();
    }

    public class Editor {
        private final Map<String, Object> edited = new HashMap<>();

        public Editor putString(String key, String value) {
            edited.put(key, value);
            return this;
        }

        public Editor putLong(String key, long value) {
            edited.put(key, value);
            return this;
        }

        public void apply() {
            stored.putAll(edited);
        }
    }
}
