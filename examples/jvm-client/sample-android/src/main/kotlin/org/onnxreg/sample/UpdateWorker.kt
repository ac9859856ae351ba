// Not compiled or run here: see README.md.
package org.onnxreg.sample

import android.content.Context
import androidx.work.Constraints
import androidx.work.ExistingPeriodicWorkPolicy
import androidx.work.NetworkType
import androidx.work.PeriodicWorkRequestBuilder
import androidx.work.WorkManager
import androidx.work.Worker
import androidx.work.WorkerParameters
import androidx.work.workDataOf
import java.util.concurrent.TimeUnit
import org.onnxreg.client.Cancellation
import org.onnxreg.client.Listener
import org.onnxreg.client.RegException
import org.onnxreg.client.UpdateOptions

/** Updates the model. It may be stopped at any point: the next run continues from the disk. */
class UpdateWorker(context: Context, parameters: WorkerParameters) : Worker(context, parameters) {
    private val cancellation = Cancellation()

    override fun doWork(): Result {
        val models = Models(applicationContext)
        val options = UpdateOptions().selfTest(goldenVectors).cancellation(cancellation).listener(progress)
        return try {
            models.registry.update(MODEL, models.question, options)
            models.registry.tidy(200_000_000)
            Result.success()
        } catch (error: RegException) {
            when (error.family) {
                RegException.Family.REMOTE, RegException.Family.CANCELLED -> Result.retry()
                else -> Result.failure(workDataOf("error" to error.message))
            }
        }
    }

    override fun onStopped() = cancellation.cancel()

    private val progress = object : Listener() {
        override fun onProgress(done: Long, total: Long) {
            setProgressAsync(workDataOf("done" to done, "total" to total))
        }
    }

    companion object {
        /** Update once a day on a network that costs nothing. */
        fun schedule(context: Context) {
            val request = PeriodicWorkRequestBuilder<UpdateWorker>(1, TimeUnit.DAYS)
                .setConstraints(Constraints.Builder().setRequiredNetworkType(NetworkType.UNMETERED).build())
                .build()
            WorkManager.getInstance(context)
                .enqueueUniquePeriodicWork(MODEL, ExistingPeriodicWorkPolicy.KEEP, request)
        }
    }
}
