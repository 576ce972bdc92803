package com.google.firebase.messaging;

import android.content.Context;

public abstract class FirebaseMessagingService extends Context {
    public abstract void onNewToken(String token);

    public abstract void onMessageReceived(RemoteMessage message);
}
