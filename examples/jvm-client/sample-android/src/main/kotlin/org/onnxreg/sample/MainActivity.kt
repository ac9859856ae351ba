// Not compiled or run here: see README.md.
package org.onnxreg.sample

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.LinearLayout
import android.widget.TextView
import java.util.concurrent.Executors
import org.onnxreg.client.RegException

/** Shows the current release, updates it, and rolls it back. The client blocks, so a worker thread calls it. */
class MainActivity : Activity() {
    private val worker = Executors.newSingleThreadExecutor()
    private lateinit var models: Models
    private lateinit var status: TextView

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        models = Models(this)
        status = TextView(this)
        val rows = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        rows.addView(status)
        rows.addView(button("Update") { models.registry.update(MODEL, models.question) })
        rows.addView(button("Roll back") { models.registry.rollback(MODEL) })
        setContentView(rows)
        UpdateWorker.schedule(this)
        run {}
    }

    private fun button(label: String, action: () -> Unit) = Button(this).apply {
        text = label
        setOnClickListener { run(action) }
    }

    private fun run(action: () -> Unit) = worker.execute {
        val line = try {
            action()
            val session = models.session()
            "${models.registry.slot(MODEL).current ?: "no model yet"}: inputs ${session?.inputNames}"
        } catch (error: RegException) {
            "${error.family}: ${error.message}"
        }
        runOnUiThread { status.text = line }
    }
}
