require "tmpdir"; require "socket"
ENV["XDG_RUNTIME_DIR"] = Dir.mktmpdir("hf")
Heddle.insight
trap("USR1") { Process.wait(fork { puts "child of a handler listens: #{Heddle::Insight.listens?}" }) }
Process.kill(:USR1, $$); sleep 0.5
