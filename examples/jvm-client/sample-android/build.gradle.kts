// Not compiled or run here: see README.md.
plugins {
    id("com.android.application")
    kotlin("android")
}

android {
    namespace = "org.onnxreg.sample"
    compileSdk = 35
    defaultConfig {
        minSdk = 26
        targetSdk = 35
        versionCode = 1
    }
}

repositories {
    google()
    mavenCentral()
    maven { url = uri("../maven") } // written by: python build.py maven
}

dependencies {
    implementation("org.onnxreg:onnxreg-client:0.2.0")
    implementation("com.microsoft.onnxruntime:onnxruntime-android:1.23.2")
    implementation("androidx.work:work-runtime:2.10.0")
}
