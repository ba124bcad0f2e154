# frozen_string_literal: true

namespace :test do
  desc "Run the models of test/simulation with seeds of the day for a minute; SECONDS=3600, SEED=1"
  task simulation: :compile do
    require_relative "../test/support/models"

    seed = Integer(ENV.fetch("SEED") { Time.now.strftime("%Y%m%d000") })
    models = Models.new(File.expand_path("..", __dir__))
    finding = models.look(Integer(ENV.fetch("SECONDS", "60")), seed: seed)
    abort "#{finding.output}\n#{finding}\nSIMULATION_SEED=#{finding.seed} runs it again" if finding
    puts "#{models.runs} runs of the models from seed #{seed} on: nothing found"
  end
end
