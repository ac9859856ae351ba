// Not compiled or run here: see README.md.
package org.onnxreg.sample

import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtSession
import android.content.Context
import java.io.File
import java.nio.LongBuffer
import kotlin.math.abs
import org.json.JSONArray
import org.json.JSONObject
import org.onnxreg.client.Device
import org.onnxreg.client.Question
import org.onnxreg.client.Registry
import org.onnxreg.client.Release
import org.onnxreg.client.SelfTest

const val MODEL = "acme/pii"

/** The registry of this app and its question. */
class Models(context: Context) {
    val registry = Registry("https://models.example/tree", File(context.noBackupFilesDir, "models"))

    val question: Question = Question()
        .tag("stable")
        .certified()
        .device(Device("1.23.2").providers("CPU", "NNAPI").freeSpace(context.noBackupFilesDir.usableSpace))

    /** Open the current release; null before the first update. */
    fun session(): OrtSession? = registry.slot(MODEL).current?.let { open(registry, it) }
}

fun open(registry: Registry, release: Release): OrtSession =
    OrtEnvironment.getEnvironment().createSession(registry.file(release, release.artifact.path).path)

/** The golden vectors of docs/golden.md: this phone must compute what the exporter computed. Without them it must load. */
val goldenVectors = SelfTest { registry, release ->
    val isGolden = release.files.any { it.role == "golden" }
    val cases = if (isGolden) casesOf(registry, release) else JSONArray()
    open(registry, release).use { session ->
        (0 until cases.length()).all { passes(session, cases.getJSONObject(it)) }
    }
}

private fun casesOf(registry: Registry, release: Release): JSONArray =
    JSONObject(String(registry.readRole(release, "golden"))).getJSONArray("cases")

private fun passes(session: OrtSession, case: JSONObject): Boolean {
    val values = case.getJSONObject("inputs")
    val inputs = values.keys().asSequence().associateWith { tensor(values.getJSONObject(it)) }
    val outputs = case.getJSONObject("outputs")
    session.run(inputs).use { results ->
        return outputs.keys().asSequence().all { name ->
            val actual = (results.get(name).get() as OnnxTensor).floatBuffer
            isClose(actual.let { FloatArray(it.remaining()).also(it::get) }, outputs.getJSONObject(name))
        }
    }
}

/** Inputs of token classifiers are int64; other models need the other types of docs/golden.md. */
private fun tensor(value: JSONObject): OnnxTensor =
    OnnxTensor.createTensor(
        OrtEnvironment.getEnvironment(),
        LongBuffer.wrap(longs(value.getJSONArray("data"))),
        longs(value.getJSONArray("shape")),
    )

private fun longs(array: JSONArray) = LongArray(array.length()) { array.getLong(it) }

private fun isClose(actual: FloatArray, expected: JSONObject): Boolean {
    val data = expected.getJSONArray("data")
    val atol = expected.optDouble("atol", 0.0)
    val rtol = expected.optDouble("rtol", 0.0)
    return actual.size == data.length() &&
        actual.indices.all { abs(actual[it] - data.getDouble(it)) <= atol + rtol * abs(data.getDouble(it)) }
}
