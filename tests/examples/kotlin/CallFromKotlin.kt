import java.io.File
import org.onnxreg.client.Cancellation
import org.onnxreg.client.Device
import org.onnxreg.client.Listener
import org.onnxreg.client.Question
import org.onnxreg.client.RegException
import org.onnxreg.client.Registry
import org.onnxreg.client.UpdateOptions

/** Updates a model and prints its version, the bytes of its file and the last progress. */
fun main(words: Array<String>) {
    val registry = Registry(words[0], File(words[1]))
    val device = Device("1.23.2").providers("CPU", "NNAPI")
    val question = Question().certified().where("size <= 30MB").device(device)
    var last = 0L
    val options = UpdateOptions()
        .cancellation(Cancellation())
        .listener(object : Listener() {
            override fun onProgress(done: Long, total: Long) {
                last = done
            }
        })
        .selfTest { where, release -> where.file(release, release.artifact.path).length() > 0 }
    val release = registry.update("acme/pii", question, options).release
    val model = registry.file(release, release.artifact.path)
    println("${release.version} ${model.length()} $last ${String(registry.readRole(release, "config"))}")
    try {
        registry.rollback("acme/pii")
    } catch (error: RegException) {
        println(error.family)
    }
}
