# frozen_string_literal: true

Compatibility.library "sidekiq (heddle/sidekiq)", gem: "sidekiq", kind: "Job runners" do
  peer(:scripted) { |socket| socket.puts(socket.gets) }
  load do
    require "sidekiq"
    require "support/sidekiq_process"
  end
  connect do |peer|
    @runner = nil unless @asked == peer.to_s
    @asked = peer.to_s
    @runner ||= Process.spawn({"REDIS_URL" => Servers.redis.url, "ASK" => peer.to_s}, RbConfig.ruby,
      "-I#{SidekiqProcess::ROOT}/lib", Gem.bin_path("sidekiq", "sidekiq"), "-r",
      File.expand_path("../sidekiq_job.rb", __dir__), out: File::NULL)
    [@runner, Sidekiq::RedisConnection.create(url: Servers.redis.url, size: 20, timeout: 30)]
  end
  ask do |(_, redis), number|
    Sidekiq::Client.new(pool: redis).push("class" => "AskingJob", "args" => [number], "queue" => "default")
    redis.with { |connection| connection.blocking_call(20, "BLPOP", "answer#{number}", 15) }.last[/\d+/].to_i
  end
  close do |(runner)|
    Process.kill(:KILL, runner)
    Process.wait(runner)
  rescue Errno::ESRCH
    nil # it was the same for the other clients
  end
  only :at_once, "Ten jobs at once, each of which waits for a server: [jobs](../guides/jobs.md)."
end
