# frozen_string_literal: true

desc "Write llms.txt, an index of the guides, and context/, the guides as the gem carries them for agents"
task :context do
  require_relative "context"
  context = Context.new(Dir.pwd)
  File.write("llms.txt", context.index)
  context.write("context")
end
