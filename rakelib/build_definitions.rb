# frozen_string_literal: true

# The results of extconf.rb for this Ruby: the compiler's -D options, from the Makefile that it wrote.
module BuildDefinitions
  def self.of_this_ruby
    makefile = "tmp/#{RUBY_PLATFORM}/heddle/#{RUBY_VERSION}/Makefile"
    raise "there is no #{makefile}: `rake compile` first" unless File.exist?(makefile)

    File.read(makefile).scan(/^(?:DEFS|CPPFLAGS|INCFLAGS) *= *(.*)$/).join(" ").scan(/-D\S+/).uniq
  end
end
